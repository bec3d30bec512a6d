insert into stagepost_audit (id, actor, action, subject, detail, acted_at)
values (:id, :actor, :action, :subject, :detail, :now)
