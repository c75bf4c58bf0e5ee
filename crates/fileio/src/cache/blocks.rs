//! A set of blocks of a folio, 512 at most.
