update segments
set tts_error = :error
where task_id = :task_id and idx = :idx
