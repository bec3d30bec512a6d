-- Differs: every database has its own settings.
select 'synchronous', synchronous
from pragma_synchronous
union all
select 'journal_mode', journal_mode
from pragma_journal_mode
union all
select 'file', file
from pragma_database_list
where name = 'main'
