//! x
pub mod event;
pub mod reader;
pub mod sse;
