//! Which clean folio goes first: S3-FIFO over folios, by their bytes.
