#include "textflag.h"

// DIFFER leaves 0x80 in each of eight bytes of the text that isn't a beginning. R1 to R4 are the
// fields of the beginning, as pattern.differs uses them.
#define DIFFER(offset) \
	Get R0; \
	I32WrapI64; \
	I64Load $(offset); \
	Get R2; \
	I64Xor; \
	Get R1; \
	I64And; \
	Get R0; \
	I32WrapI64; \
	I64Load $(offset+1); \
	Get R4; \
	I64Xor; \
	Get R3; \
	I64And; \
	I64Or; \
	I64Const $0x7f7f7f7f7f7f7f7f; \
	I64Add

// func pass(text []byte, b *beginning) (at int)
//
// R0 is the address in the text, and R5 the last address from which 33 bytes follow.
TEXT ·pass(SB), NOSPLIT, $0-40
	MOVD text_base+0(FP), R0
	MOVD text_len+8(FP), R5
	Get R0
	Get R5
	I64Add
	I64Const $33
	I64Sub
	Set R5

	MOVD b+24(FP), R6
	Get R6
	I32WrapI64
	I64Load $0
	Set R1
	Get R6
	I32WrapI64
	I64Load $8
	Set R2
	Get R6
	I32WrapI64
	I64Load $16
	Set R3
	Get R6
	I32WrapI64
	I64Load $24
	Set R4

	Block
		Loop
			Get R0
			Get R5
			I64GtS
			BrIf $1

			DIFFER(0)
			DIFFER(8)
			I64And
			DIFFER(16)
			I64And
			DIFFER(24)
			I64And
			I64Const $-0x7f7f7f7f7f7f7f80
			I64And
			I64Const $-0x7f7f7f7f7f7f7f80
			I64Ne
			BrIf $1

			Get R0
			I64Const $32
			I64Add
			Set R0
			Br $0
		End
	End

	Get SP
	Get R0
	I64Load text_base+0(FP)
	I64Sub
	I64Store at+32(FP)
	RET
