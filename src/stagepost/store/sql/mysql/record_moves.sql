-- Differs: rows come through json_table.
insert into stagepost_move (scope, was, became, jobs)
select scope, was, became, jobs
from json_table(:moves, '$[*]' columns (
    scope varchar(200) character set utf8mb4 path '$.scope', was varchar(24) character set utf8mb4 path '$.was',
    became varchar(24) character set utf8mb4 path '$.became', jobs integer path '$.jobs'
)) as move
