//! Whole volumes, damaged as the input says, are read and changed.
#![no_main]

libfuzzer_sys::fuzz_target!(init: throughline_fuzz::make_images(), |data: &[u8]| throughline_fuzz::volume(data));
