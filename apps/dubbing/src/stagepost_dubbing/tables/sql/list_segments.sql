select idx, segment_id, start_ms, end_ms, src_text, mt_text, tts_audio_key, tts_params_json, tts_error
from segments
where task_id = :task_id
order by idx
