//go:build !noasm

package dot

// The sets of kernels with 256-bit registers: AVX2 needs AVX2, FMA and F16C; AVXVNNI also the VEX form of VNNI.
var (
	AVX2 = Set{
		Of: [Layouts]Kernels{
			F32:  kernels256(avx2GemvF32, avx2Small2F32, avx2Small3F32, avx2Gemm1F32, avx2Gemm2F32, avx2Gemm3F32),
			F16:  kernels256(avx2GemvF16, avx2Small2F16, avx2Small3F16, avx2Gemm1F16, avx2Gemm2F16, avx2Gemm3F16),
			BF16: kernels256(avx2GemvBF16, avx2Small2BF16, avx2Small3BF16, avx2Gemm1BF16, avx2Gemm2BF16, avx2Gemm3BF16),
			Q8_0: kernels256(avx2GemvQ8_0, avx2Small2Q8_0, avx2Small3Q8_0, avx2Gemm1Q8_0, avx2Gemm2Q8_0, avx2Gemm3Q8_0,
				avx2Gemm4Q8_0, avx2Gemm5Q8_0, avx2Gemm6Q8_0),
			Q4_0: kernels256(avx2GemvQ4_0, avx2Small2Q4_0, avx2Small3Q4_0, avx2Gemm1Q4_0, avx2Gemm2Q4_0, avx2Gemm3Q4_0).unpacking(avx2UnpackQ4_0, 1088),
			Q4_1: kernels256(avx2GemvQ4_1, avx2Small2Q4_1, avx2Small3Q4_1, avx2Gemm1Q4_1, avx2Gemm2Q4_1, avx2Gemm3Q4_1).unpacking(avx2UnpackQ4_1, 1152),
			Q5_0: kernels256(avx2GemvQ5_0, avx2Small2Q5_0, avx2Small3Q5_0, avx2Gemm1Q5_0, avx2Gemm2Q5_0, avx2Gemm3Q5_0).unpacking(avx2UnpackQ5_0, 1088),
			Q5_1: kernels256(avx2GemvQ5_1, avx2Small2Q5_1, avx2Small3Q5_1, avx2Gemm1Q5_1, avx2Gemm2Q5_1, avx2Gemm3Q5_1).unpacking(avx2UnpackQ5_1, 1152),
			Q4_K: kernels256(avx2GemvQ4_K, avx2Small2Q4_K, avx2Small3Q4_K, avx2Gemm1Q4_K, avx2Gemm2Q4_K, avx2Gemm3Q4_K).unpacking(avx2UnpackQ4_K, 4416),
			Q5_K: kernels256(avx2GemvQ5_K, avx2Small2Q5_K, avx2Small3Q5_K, avx2Gemm1Q5_K, avx2Gemm2Q5_K, avx2Gemm3Q5_K).unpacking(avx2UnpackQ5_K, 4416),
			Q6_K: kernels256(avx2GemvQ6_K, avx2Small2Q6_K, avx2Small3Q6_K, avx2Gemm1Q6_K, avx2Gemm2Q6_K, avx2Gemm3Q6_K).unpacking(avx2UnpackQ6_K, 4416),
			Q2_K: kernels256(avx2GemvQ2_K, avx2Small2Q2_K, avx2Small3Q2_K, avx2Gemm1Q2_K, avx2Gemm2Q2_K, avx2Gemm3Q2_K).unpacking(avx2UnpackQ2_K, 4416),

			Code4: kernels256(avx2GemvCode4, avx2Small2Code4, avx2Small3Code4, avx2Gemm1Code4, avx2Gemm2Code4, avx2Gemm3Code4).unpacking(avx2UnpackCode4, 4416),
		},
	}
	AVXVNNI = Set{
		Of: [Layouts]Kernels{ // floats: AVX2's
			Q8_0: kernels256(avxvnniGemvQ8_0, avxvnniSmall2Q8_0, avxvnniSmall3Q8_0, avxvnniGemm1Q8_0, avxvnniGemm2Q8_0, avxvnniGemm3Q8_0),
			Q4_0: kernels256(avxvnniGemvQ4_0, avxvnniSmall2Q4_0, avxvnniSmall3Q4_0, avxvnniGemm1Q4_0, avxvnniGemm2Q4_0, avxvnniGemm3Q4_0),
			Q4_1: kernels256(avxvnniGemvQ4_1, avxvnniSmall2Q4_1, avxvnniSmall3Q4_1, avxvnniGemm1Q4_1, avxvnniGemm2Q4_1, avxvnniGemm3Q4_1),
			Q5_0: kernels256(avxvnniGemvQ5_0, avxvnniSmall2Q5_0, avxvnniSmall3Q5_0, avxvnniGemm1Q8_0, avxvnniGemm2Q8_0, avxvnniGemm3Q8_0).unpacking(avx2UnpackQ5_0, 1088),
			Q5_1: kernels256(avxvnniGemvQ5_1, avxvnniSmall2Q5_1, avxvnniSmall3Q5_1, avxvnniGemm1Q5_1, avxvnniGemm2Q5_1, avxvnniGemm3Q5_1).unpacking(avx2UnpackQ5_1, 1152),
			Q4_K: kernels256(avxvnniGemvQ4_K, avxvnniSmall2Q4_K, avxvnniSmall3Q4_K, avxvnniGemm1Q4_K, avxvnniGemm2Q4_K, avxvnniGemm3Q4_K),
			Q5_K: kernels256(avxvnniGemvQ5_K, avxvnniSmall2Q5_K, avxvnniSmall3Q5_K, avxvnniGemm1Q5_K, avxvnniGemm2Q5_K, avxvnniGemm3Q5_K).unpacking(avx2UnpackQ5_K, 4416),
			Q6_K: kernels256(avxvnniGemvQ6_K, avxvnniSmall2Q6_K, avxvnniSmall3Q6_K, avxvnniGemm1Q6_K, avxvnniGemm2Q6_K, avxvnniGemm3Q6_K).unpacking(avx2UnpackQ6_K, 4416),
			Q2_K: kernels256(avxvnniGemvQ2_K, avxvnniSmall2Q2_K, avxvnniSmall3Q2_K, avxvnniGemm1Q2_K, avxvnniGemm2Q2_K, avxvnniGemm3Q2_K,
				avxvnniGemm4Q2_K, avxvnniGemm5Q2_K, avxvnniGemm6Q2_K).unpacking(avx2UnpackQ2_K, 4416),

			Code4: kernels256(avxvnniGemvCode4, avxvnniSmall2Code4, avxvnniSmall3Code4, avxvnniGemm1Code4, avxvnniGemm2Code4, avxvnniGemm3Code4).unpacking(avxvnniUnpackCode4, 4416),
		},
	}
)

// kernels256 takes kernels of 1 to 3 rows; of gemm there may be more.
func kernels256(gemv, small2, small3 func(*Args), gemm ...func(*Args)) Kernels {
	return Kernels{Gemv: gemv, Small: []func(*Args){nil, nil, small2, small3}, Gemm: append([]func(*Args){nil}, gemm...), Tile: 1}
}

// unpacking adds the unpacking of panels. Straight from the packed form six rows of Q5_K and Q6_K are 1.2 to 1.4 times as fast with
// VNNI, twelve equal; without VNNI four rows are 1.3 times as fast, six about equal (Q4_0, Q4_K: 1.6 and 1.4 times).
func (k Kernels) unpacking(f func(*Args), groupBytes int) Kernels {
	k.Unpack, k.UnpackedBytes, k.Few = f, groupBytes, 6
	return k
}
