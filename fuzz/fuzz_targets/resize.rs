//! Whole volumes, damaged as the input says, grow and shrink.
#![no_main]

libfuzzer_sys::fuzz_target!(init: throughline_fuzz::make_images(), |data: &[u8]| throughline_fuzz::resize(data));
