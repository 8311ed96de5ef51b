// Expands the flag table with the four SINTER_FLAG_* macros that the includer defined, then forgets them.
// No include guard on purpose.
#include "support/flags.def"  // IWYU pragma: keep

#undef SINTER_FLAG_BOOL
#undef SINTER_FLAG_INT
#undef SINTER_FLAG_BYTES
#undef SINTER_FLAG_STRING
