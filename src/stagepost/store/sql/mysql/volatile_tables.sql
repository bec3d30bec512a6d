-- Differs: a table can have another engine.
select table_name, engine
from information_schema.tables
where table_schema = database()
  and table_name like 'stagepost\_%' and engine <> 'InnoDB'
order by table_name
