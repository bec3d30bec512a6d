-- Differs: rows come through json_each.
insert into stagepost_move (scope, was, became, jobs)
select value ->> 'scope', value ->> 'was', value ->> 'became', value ->> 'jobs'
from json_each(:moves)
