//! A process that makes system calls as a test tells it: see [`throughline_testing::actor`].
#![forbid(unsafe_code)]

fn main() {
    throughline_testing::actor::serve();
}
