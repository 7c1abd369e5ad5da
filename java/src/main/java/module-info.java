/** A client and a server of EPICS process variables. */
module io.github.fodopv {
    exports io.github.fodopv;
}
