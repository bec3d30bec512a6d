select count(*), count(mt_text), count(tts_audio_key)
from segments
where task_id = :task_id
