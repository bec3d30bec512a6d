"""Recognisers, translators and voices behind small interfaces; settings choose one of each."""
