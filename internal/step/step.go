// Package step is the kinds of steps that graphs are made of. Each kind is one file: what it computes (shape rule, float64 definition), how a
// plan lays it out (cut, operands), what it costs, and the routine with which a worker computes a part of it. Table has a row for each.
//
// A new kind is a file and its row.
package step

import (
	"ck/internal/plan"
	"ck/internal/walk"
)

// Table has a row for each kind of step.
var Table = []Row{
	{Embed{}, []Realisation{{embed, runEmbed}}},
	{Pick{}, []Realisation{{pick, runPick}}},
	{Norm{}, []Realisation{{rmsnorm, runNorm}}},
	{Matmul{}, []Realisation{{quantize, runQuantize}, {matmul, runMatmul}, {partial, runPartial}, {sum, runSum}}},
	{Rotate{}, []Realisation{{angles, runAngles}, {anglesBack, runAngles}, {rope, runRope}}},
	{Attend{}, []Realisation{{store, runStore}, {attend, runAttend}, {keep, runKeep}, {chunks, runChunks}, {merge, runMerge}}},
	{GLU{}, []Realisation{{siluMul, runSiLUMul}, {geluMul, runGELUMul}, {clampedMul, runClampedMul}}},
	{Softcap{}, []Realisation{{bounded, runSoftcap}}},
	{Add{}, []Realisation{{add, runAdd}}},
	{Activate{}, []Realisation{{relu2, runReLU2}, {xielu, runXIELU}}},
	{Scale{}, []Realisation{{scale, runScale}}},
	{Columns{}, []Realisation{{columns, runColumns}}},
	{Temper{}, []Realisation{{temper, runTemper}}},
	{Weigh{}, []Realisation{{weigh, runWeigh}}},
	{Route{}, []Realisation{{route, runRoute}}},
	{Send{}, []Realisation{{send, runSend}, {sendScaled, runSendScaled}, {sendAct, runSendAct}}},
	{Experts{}, []Realisation{{experts, runExperts}, {partialExperts, runPartialExperts}, {sumExperts, runSumExperts}}},
	{Combine{}, []Realisation{{combine, runCombine}, {gather, runCombine}}},
	{Dropout{}, []Realisation{{dropout, runDropout}}},

	// Of backwards.
	{CrossEntropy{}, []Realisation{{crossEntropy, runCrossEntropy}}},
	{Turn{}, []Realisation{{turn, runTurn}}},
	{Outer{}, []Realisation{{outer, runOuter}, {outerOnto, runOuter}}},
	{PartRows{}, []Realisation{{partRows, runPartRows}}},
	{PlaceRows{}, []Realisation{{firstRows, runPlaceRows}, {moreRows, runPlaceRows}}},
	{SumRows{}, []Realisation{{sumRows, runSumRows}}},
	{EmbedGrad{}, []Realisation{{embedGrad, runEmbedGrad}}},
	{PickGrad{}, []Realisation{{pickGrad, runPickGrad}}},
	{NormGrad{}, []Realisation{{normGrad, runNormGrad}}},
	{NormWeight{}, []Realisation{{normWeight, runNormWeight}}},
	{AttendGrad{}, []Realisation{{attendGrad, runAttendGrad}, {attendSinksGrad, runAttendGrad}}},
	{GLUGrad{}, []Realisation{{gluGrad, runGLUGrad}}},
	{SoftcapGrad{}, []Realisation{{softcapGrad, runSoftcapGrad}}},
	{ActivateGrad{}, []Realisation{{activateGrad, runActivateGrad}}},
	{ColumnsGrad{}, []Realisation{{columnsGrad, runColumnsGrad}}},
	{RowDot{}, []Realisation{{rowDot, runRowDot}}},
	{WeighGrad{}, []Realisation{{weighGrad, runWeighGrad}}},
	{RouteGrad{}, []Realisation{{routeGrad, runRouteGrad}, {routeFactorsGrad, runRouteGrad}}},
	{Balance{}, []Realisation{{balance, runBalance}}},
	{SentDots{}, []Realisation{{sentDots, runSentDots}}},
	{ExpertOuter{}, []Realisation{{expertOuter, runExpertOuter}}},
	{ExpertSum{}, []Realisation{{expertSum, runExpertSum}}},
}

// Row is a kind of step with the realisations that plans make of it.
type Row struct {
	Op   plan.Op // with zero attributes
	Does []Realisation
}

// Realisation is an entry of plans with the routine that computes it.
type Realisation struct {
	Kind *plan.Kind
	Run  walk.Routine
}

// Routines is the routines of all kinds, for walk.New.
var Routines = func() walk.Routines {
	m := walk.Routines{}
	for _, r := range Table {
		for _, d := range r.Does {
			m[d.Kind] = d.Run
		}
	}
	return m
}()
