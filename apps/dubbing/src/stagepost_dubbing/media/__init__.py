"""Video and sound: ffmpeg, samples, the timeline, subtitles."""
