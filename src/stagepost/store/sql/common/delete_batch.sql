delete from stagepost_move
where scope in (:scope, :removed_scope)
;
delete from stagepost_count
where scope in (:scope, :removed_scope)
;
delete from stagepost_batch
where id = :id
