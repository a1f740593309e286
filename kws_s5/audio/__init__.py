"""The front door of sound: files, arrays and streams -> mono float32 waveforms that know their rate."""

from kws_s5.audio.files import Audio, AudioInfo, audio_blocks, audio_info, load_audio, save_wav

__all__ = ["Audio", "AudioInfo", "audio_blocks", "audio_info", "load_audio", "save_wav"]
