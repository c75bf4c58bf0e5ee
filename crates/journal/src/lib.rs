//! Metadata buffers, transactions and recovery.
#![forbid(unsafe_code)]
