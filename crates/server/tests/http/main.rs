//! Handlers over HTTP: whole answers of every resource and every class of error.

mod change_feed;
mod client; // the server under test and a signing client

mod account;
mod advice;
mod batch;
mod client_bodies;
mod client_headers;
mod clients;
mod containers;
mod databases;
mod demo;
mod dotnet_traffic;
mod faults;
mod follow;
mod items;
mod jobs;
mod merged_groups;
mod model;
mod model_pending;
mod not_supported;
mod offers;
mod partition_key_ranges;
mod patch;
mod queries;
mod query_plans;
mod refactorings;
mod resume;
mod script_runs;
mod scripts;
mod sessions;
mod split;
mod throttle;
mod transactions;
mod users;
mod views;
mod what_if;
mod workload;
