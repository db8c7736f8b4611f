//! A simulated inference gateway that knows the truth about its own timing and can go wrong in every way that is known.

pub mod fault;
pub mod settings;
pub mod value;
