//! The composition root: builds the parts and puts them together. Nothing here measures or decides.

pub mod daemon;
pub mod demo;
pub mod online;
pub mod prompts;
pub mod signals;
