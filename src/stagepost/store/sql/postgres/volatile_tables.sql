-- Differs: a table can be unlogged.
select relname, 'unlogged'
from pg_class
where relname like 'stagepost\_%'
  and relkind = 'r' and relpersistence <> 'p' and pg_table_is_visible(oid)
order by relname
