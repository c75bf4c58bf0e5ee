//! A folio: naturally aligned memory of one file, and what is known of each block in it.
