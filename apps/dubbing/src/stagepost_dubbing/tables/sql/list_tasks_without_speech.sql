select tasks.id, count(*)
from tasks
join segments on segments.task_id = tasks.id
where tasks.status = 'failed'
  and tasks.requeues < :most_requeues
  and segments.tts_audio_key is null
  and segments.mt_text is not null
  and exists (select 1 from task_steps where task_steps.task_id = tasks.id and task_steps.step = 'tts')
group by tasks.id, tasks.updated_at
order by tasks.updated_at, tasks.id
limit :most
