select id
from (select id from stagepost_job where id between :first_id and :last_id limit :most) as some_live
union all
select id
from (select id from stagepost_job_history where id between :first_id and :last_id limit :most) as some_ended
