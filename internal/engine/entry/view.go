package entry

// BlockKeys is how many keys a block of the list of dirty keys has. It is for tests.
const BlockKeys = dirtyBlockKeys
