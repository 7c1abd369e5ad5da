//! Groups of PVs over pvAccess: structures whose members are values of records, the same as in QSRV2.
//!
//! Source: pvxs 1.5.3, `documentation/qgroup.rst` and `ioc/groupsource.cpp`.

mod layout;
mod member;
mod pv;
mod tree;

pub use layout::{GroupLayout, ResolvedGroups, resolve, shown_path};
pub use pv::GroupPv;
