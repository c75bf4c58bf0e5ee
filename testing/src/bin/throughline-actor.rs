//! A process that makes system calls for tests: see [`throughline_testing::actor`].
#![forbid(unsafe_code)]

fn main() {
    throughline_testing::actor::serve();
}
