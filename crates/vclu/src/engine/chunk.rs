//! Compiled scripts by their text: clients repeat the same texts, and compiling takes longer than most calls.

use std::collections::HashMap;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua};

use crate::limit::{CHUNK_TEXT_MAX, CHUNKS_MAX};

/// The scripts that were used last.
#[derive(Default)]
pub(crate) struct ChunkCache {
    chunks: HashMap<Box<str>, CachedChunk>,
    /// Counts the uses; a larger number is a later use.
    n_uses: u64,
}

struct CachedChunk {
    function: Function,
    last_use: u64,
}

impl ChunkCache {
    pub fn find(&mut self, script: &str) -> Option<Function> {
        self.n_uses += 1;
        let chunk = self.chunks.get_mut(script)?;
        chunk.last_use = self.n_uses;
        Some(chunk.function.clone())
    }

    /// Keeps a compiled script; the one that was not used for longest is dropped.
    pub fn insert(&mut self, script: &str, function: &Function) {
        if script.len() > CHUNK_TEXT_MAX {
            return;
        }
        if self.chunks.len() == CHUNKS_MAX {
            let oldest = self.chunks.iter().min_by_key(|(_, chunk)| chunk.last_use).map(|(text, _)| text.clone());
            if let Some(oldest) = oldest {
                self.chunks.remove(&oldest);
            }
        }
        self.chunks.insert(script.into(), CachedChunk { function: function.clone(), last_use: self.n_uses });
    }
}

/// Compiles the text of a request: an expression, or else statements.
pub(crate) fn compile(lua: &Lua, script: &str) -> mlua::Result<Function> {
    let compiled = |text: String| lua.load(text).set_name("=request").set_mode(ChunkMode::Text).into_function();
    match compiled(format!("return {script}\n")) {
        Ok(function) => Ok(function),
        Err(as_expression) => compiled(script.to_string()).map_err(|_| as_expression),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_that_was_not_used_for_longest_is_dropped() {
        let lua = Lua::new();
        let function = compile(&lua, "1").unwrap();
        let mut cache = ChunkCache::default();
        for index in 0..CHUNKS_MAX {
            assert!(cache.find(&index.to_string()).is_none());
            cache.insert(&index.to_string(), &function);
        }
        assert!(cache.find("0").is_some());

        cache.insert("another", &function);

        assert!(cache.find("0").is_some());
        assert!(cache.find("1").is_none());
        assert!(cache.find("another").is_some());
    }

    #[test]
    fn a_long_script_is_not_kept() {
        let lua = Lua::new();
        let mut cache = ChunkCache::default();
        let script = format!("\"{}\"", "x".repeat(CHUNK_TEXT_MAX));

        cache.insert(&script, &compile(&lua, &script).unwrap());

        assert!(cache.find(&script).is_none());
    }
}
