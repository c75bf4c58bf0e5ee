#![no_main]

#[allow(dead_code)] // used by the other targets
#[path = "../../crates/extfmt/tests/extfmt/exercise/mod.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::extent_node(data));
