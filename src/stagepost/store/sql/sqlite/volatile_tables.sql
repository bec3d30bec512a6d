-- Differs: every table is as safe as the file.
select name, type
from sqlite_schema
where false
