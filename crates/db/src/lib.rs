//! Records, fields, links, scans, alarms, calc, access rules, `.db` and `.acf` files. No network, no I/O, no clock.
//!
//! [`Database`] is a state machine: its inputs are puts and the time, its outputs are posts and completions.
#![forbid(unsafe_code)]

mod breaktable;
mod calc;
mod common;
mod core;
mod database;
mod device;
mod error;
mod event;
mod external_pv;
mod field;
mod filter;
mod hash;
mod input;
mod inspect;
mod json;
mod limit;
mod link;
mod load;
mod menu;
mod meta;
mod presentation;
mod process;
mod program;
mod record;
mod reference;
mod routine;
mod scan_menu;
mod security;
mod site;
mod state;
mod strftime;

pub use database::Database;
pub use error::PutError;
pub use event::{Event, Stream};
pub use external_pv::{
    ExternalLinkId, ExternalLinkStatus, ExternalPvEvent, ExternalPvFacts, LinkUsage, PvaLink, PvaProcessing,
};
pub use filter::{
    ChannelError, ChannelField, Filter, FilterChain, FilterContext, FilterError, FilterFault, SyncMode, TimeFormat,
};
pub use hash::{FieldMap, TrustedKeyHasher};
pub use input::{Input, Processing};
pub use inspect::{LinkInfo, LinkTarget};
pub use load::{
    ExpandedTemplate, GroupDefinition, GroupDefinitions, InertRecords, Instance, LoadError, Loader, MacroError, Macros,
    MemberDefinition, MemberMapping, MemberPath, Omitted, OpenFile, PathStep, RecordDefinition, RestoreError,
    TemplateStatement, UndefinedMacros, closest_match, expand, instances, template_sets, unescaped,
};
pub use presentation::Presentation;
pub use process::scan::ScanCounts;
pub use program::{OutputId, OutputResult, ProgramDirection, ProgramError, ProgramValue};
pub use record::array::KINDS;
pub use record::registry::record_types;
pub use reference::{AccessLevel, FieldFacts, FieldRef, PutId};
pub use routine::{ASubCall, ArrayElement, RoutineFailed, SubCall};
pub use security::{
    Access, AccessClient, AccessDecision, AccessFile, AccessInput, AccessInputState, AccessSection, Security,
};
pub use site::{Site, Zone};
pub use state::{DbState, States};
