//! Sequences of requests to a mount's server on a damaged volume, without a kernel; the input chooses both.
#![no_main]

libfuzzer_sys::fuzz_target!(init: throughline_fuzz::make_images(), |data: &[u8]| throughline_fuzz::served(data));
