delete from stagepost_move
where scope = :scope
;
delete from stagepost_count
where scope = :scope
;
delete from stagepost_batch
where id = :id
