#![no_main]

#[path = "../../crates/archive/tests/archive/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::archive(data));
