-- One statement, so that the gate's counter and the batches are of the same moment.
select
    name, unfinished,
    (
        select count(*)
        from stagepost_batch as batch
        where batch.gate = stagepost_gate.name and batch.state in ('open', 'sealed')
    )
from stagepost_gate
where name > :after
order by name
limit :most
