update segments
set tts_audio_key = :key, tts_params_json = :parameters, tts_error = null
where task_id = :task_id and idx = :idx
  and tts_audio_key is null and mt_text = :text
