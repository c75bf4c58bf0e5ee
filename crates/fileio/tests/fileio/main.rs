//! File data, direct and through the cache.

mod common;
mod direct;
mod fake_mapper;
mod raw;
mod raw_cached;
mod writeback;
