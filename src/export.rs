//! What leaves the daemon: metrics, API and pages, made from one immutable picture.

pub mod http;
pub mod metrics;
pub mod view;

mod api;
mod page;
