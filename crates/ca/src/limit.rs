//! Every bound of this crate, with its reason.
