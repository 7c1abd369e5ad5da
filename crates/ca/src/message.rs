//! Headers and messages: one table row per command.
