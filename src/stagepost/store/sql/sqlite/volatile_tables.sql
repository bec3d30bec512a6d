-- Differs: has no volatile tables; each is as durable as the file.
select name, type
from sqlite_schema
where false
