update segments
set mt_text = :text, tts_audio_key = null, tts_params_json = null, tts_error = null
where task_id = :task_id and idx = :idx
