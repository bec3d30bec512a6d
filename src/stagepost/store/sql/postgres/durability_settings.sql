-- Differs: every database has its own settings.
select name, setting
from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit')
union all
select 'pg_is_in_recovery', case when pg_is_in_recovery() then 'true' else 'false' end
