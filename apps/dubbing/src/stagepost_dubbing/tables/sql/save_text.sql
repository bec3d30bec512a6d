update segments
set mt_text = :text
where task_id = :task_id and idx = :idx
  and mt_text is null
