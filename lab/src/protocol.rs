//! The protocol of a row.

use serde::{Deserialize, Serialize};

/// The protocol between client and server; rows without one are of Channel Access.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum LabProtocol {
    /// Channel Access.
    #[default]
    Ca,
    /// pvAccess.
    Pva,
}

impl LabProtocol {
    /// The name in result files and arguments, and in the variable that selects it for Fodo.
    pub fn text(self) -> &'static str {
        match self {
            LabProtocol::Ca => "ca",
            LabProtocol::Pva => "pva",
        }
    }

    /// The name in sentences.
    pub fn full_text(self) -> &'static str {
        match self {
            LabProtocol::Ca => "Channel Access",
            LabProtocol::Pva => "pvAccess",
        }
    }

    /// What follows a series in tables: nothing for Channel Access, which most rows use.
    pub fn suffix(self) -> &'static str {
        match self {
            LabProtocol::Ca => "",
            LabProtocol::Pva => ", pvAccess",
        }
    }
}
