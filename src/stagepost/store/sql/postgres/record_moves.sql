-- Differs: rows come through json_to_recordset.
insert into stagepost_move (scope, was, became, jobs)
select scope, was, became, jobs
from json_to_recordset(:moves::text::json) as move (scope text, was text, became text, jobs integer)
