//! Sequences of operations on a damaged volume; the input chooses damage and operations.
#![no_main]

libfuzzer_sys::fuzz_target!(init: throughline_fuzz::make_images(), |data: &[u8]| throughline_fuzz::operations(data));
