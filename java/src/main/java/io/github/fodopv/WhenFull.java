package io.github.fodopv;

/** What happens to an update that finds the queue of its monitor full. Updates that are dropped are counted and reported. */
public enum WhenFull {
    /** It replaces the newest update in the queue. */
    REPLACE_LAST,
    /** The oldest update in the queue is dropped for it. */
    DROP_OLDEST
}
